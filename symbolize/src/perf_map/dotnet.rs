//! What .NET calls a method in its maps: the signature with the assembly, and how it was compiled, as in
//! `instance float64 [shop] Shop::Price(int32)[OptimizedTier1]` (`PerfMap::LogJITCompiledMethod` of
//! src/coreclr/vm/perfmap.cpp, .NET Core 3.1 to .NET 10). A method that is compiled better and better is one
//! function all the same.

use stackbeat_proto::v1::methods::Runtime;

use super::Method;

/// The method that a line of a map names. `None`: it is none of .NET's, or a stub (`stub<7> …`).
pub(crate) fn method(text: &str) -> Option<Method> {
    // `PerfMapShowOptimizationTiers=0` leaves the tier out.
    let signature = match text.rsplit_once(")[") {
        Some((before, tier)) if is_tier(tier) => &text[..before.len() + 1],
        _ => text.strip_suffix(')').map(|_| text)?,
    };
    Some(Method::of(Runtime::Dotnet, behind_assembly(signature)?))
}

/// What stands between the last brackets, as `OptimizedTier1]`, `PreJit-cold]`.
fn is_tier(text: &str) -> bool {
    let is_of_tier = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.strip_suffix(']')
        .is_some_and(|tier| !tier.is_empty() && tier.bytes().all(is_of_tier))
}

/// `Shop::Price(int32)`, of `instance float64 [shop] Shop::Price(int32)`. Other brackets do not stand between
/// spaces (`int32[]`, ``List`1[System.Int32]``), or stand within others.
fn behind_assembly(signature: &str) -> Option<&str> {
    let mut from = 0;
    while let Some(at) = signature[from..].find(" [") {
        let begin = from + at + " [".len();
        let (assembly, rest) = signature[begin..].split_once(']')?;
        let is_one = !assembly.is_empty() && !assembly.contains([' ', '[', ',']);
        if let Some(name) = rest.strip_prefix(' ')
            && let Some((class, _)) = name.split_once("::")
            && is_one
            && is_balanced(class)
        {
            return Some(name);
        }
        from = begin;
    }
    None
}

/// Whether each bracket has its other one.
fn is_balanced(text: &str) -> bool {
    let depth = text.bytes().try_fold(0u32, |depth, byte| match byte {
        b'[' => depth.checked_add(1),
        b']' => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_told_from_how_they_were_compiled() {
        for (text, name) in [
            (
                "instance float64 [shop] Shop::Price(int32)[OptimizedTier1OSR]",
                Some("Shop::Price(int32)"),
            ),
            (
                "instance float64 [shop] Shop::Price(int32)[QuickJitted]",
                Some("Shop::Price(int32)"),
            ),
            (
                "int32 [work] Program::Main(string[])",
                Some("Program::Main(string[])"),
            ),
            (
                "int32[] [work] Program::Numbers()[PreJit-cold]",
                Some("Program::Numbers()"),
            ),
            (
                "class Pair`2[int32,class [a] B] [work] Program::Pairs(int32[])[Optimized]",
                Some("Program::Pairs(int32[])"),
            ),
            (
                "instance void [System.Private.CoreLib] System.Collections.Generic.List`1[System.__Canon]::Add(!0)[PreJIT]",
                Some("System.Collections.Generic.List`1[System.__Canon]::Add(!0)"),
            ),
            ("stub<7> AllocateTemporaryEntryPoints<PRECODE_STUB>", None),
            ("Builtin:ArrayMap", None),
            ("f(int)", None),
            ("f [clone] (int)", None),
            ("", None),
        ] {
            assert_eq!(method(text).map(|m| m.name).as_deref(), name, "{text}");
        }
    }
}
