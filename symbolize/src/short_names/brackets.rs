//! Which bracket of a name closes which. `<` and `>` are brackets, operators or a part of `->`: the name
//! decides.

/// Symbols of C++ operators, longest first.
const OPERATORS: [&str; 43] = [
    "new[]", "delete[]", "co_await", "delete", "new", "<=>", "<<=", ">>=", "->*", "()", "[]",
    "\"\"", "<<", ">>", "<=", ">=", "->", "==", "!=", "&&", "||", "++", "--", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "<", ">", "=", "!", "+", "-", "*", "/", "%", "&", "|", "^",
];

/// What the bytes of a name are.
#[derive(Debug)]
pub(super) struct Brackets {
    /// Of each bracket that has a partner: where that is, plus 1. Else 0.
    partner: Vec<u32>,
    /// Ends of operators' names by their begin (`operator<<` begins at its `o`).
    operators: Vec<(usize, usize)>,
    /// The most that are open at the same time.
    depth: usize,
}

impl Brackets {
    pub(super) fn of(name: &str) -> Brackets {
        let text = name.as_bytes();
        let mut found = Brackets {
            partner: vec![0; text.len()],
            operators: Vec::new(),
            depth: 0,
        };
        let mut open: Vec<usize> = Vec::new();
        let mut at = 0;
        while at < text.len() {
            if let Some(end) = operator_end(text, at) {
                found.operators.push((at, end));
                at = end;
                continue;
            }
            match text[at] {
                b'(' | b'[' | b'{' | b'<' => {
                    open.push(at);
                    found.depth = found.depth.max(open.len());
                }
                b'>' if at > 0 && matches!(text[at - 1], b'-' | b'=') => {}
                // Within parentheses it may be an operator.
                b'>' if open.last().is_some_and(|begin| text[*begin] == b'<') => {
                    found.close(&mut open, at);
                }
                b')' | b']' | b'}' => {
                    let opener = match text[at] {
                        b')' => b'(',
                        b']' => b'[',
                        _ => b'{',
                    };
                    // A `<` that nothing closes before is an operator.
                    let is_open = open.iter().rposition(|begin| text[*begin] != b'<');
                    if let Some(place) = is_open.filter(|place| text[open[*place]] == opener) {
                        open.truncate(place + 1);
                        found.close(&mut open, at);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        found
    }

    fn close(&mut self, open: &mut Vec<usize>, at: usize) {
        if let Some(begin) = open.pop() {
            self.partner[begin] = at as u32 + 1;
            self.partner[at] = begin as u32 + 1;
        }
    }

    /// Where the bracket is closed that begins here; of one that closes: where it begins.
    pub(super) fn partner(&self, at: usize) -> Option<usize> {
        let partner = *self.partner.get(at)?;
        (partner > 0).then(|| partner as usize - 1)
    }

    /// Where an operator's name ends that begins here.
    pub(super) fn operator_end(&self, at: usize) -> Option<usize> {
        let found = self
            .operators
            .binary_search_by_key(&at, |operator| operator.0);
        found.ok().map(|index| self.operators[index].1)
    }

    /// The most brackets that are open at the same time.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }
}

/// Part of an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// The end of `operator<`, `operator()` and so on, where `operator` begins here. Of a conversion (`operator
/// int`) that of the word alone.
fn operator_end(text: &[u8], at: usize) -> Option<usize> {
    const WORD: &[u8] = b"operator";
    if !text[at..].starts_with(WORD) || at > 0 && is_word(text[at - 1]) {
        return None;
    }
    let end = at + WORD.len();
    let rest = &text[end..];
    if rest.first().is_some_and(|byte| is_word(*byte)) {
        return None;
    }
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let symbol = OPERATORS.iter().find(|symbol| {
        let symbol = symbol.as_bytes();
        let after = &rest[spaces..];
        // `operator new` but not a conversion to `newer`.
        after.starts_with(symbol)
            && !(is_word(symbol[symbol.len() - 1])
                && after.get(symbol.len()).is_some_and(|byte| is_word(*byte)))
    });
    Some(match symbol {
        Some(symbol) => end + spaces + symbol.len(),
        None => end,
    })
}
