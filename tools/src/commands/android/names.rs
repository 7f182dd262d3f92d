//! Names of Java methods in a fetched trace, back as they are in the source.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use stackbeat_proto::stream::{PacketReader, write_packet};
use stackbeat_proto::v1::{Methods, packet};
use stackbeat_symbolize::retrace::Retrace;

/// Reads the `mapping.txt` of a build.
pub(super) fn read(mapping: &Path) -> Result<Retrace> {
    let text = fs::read_to_string(mapping)
        .with_context(|| format!("{}: cannot be read", mapping.display()))?;
    let retrace = Retrace::parse(&text);
    if retrace.classes() == 0 {
        anyhow::bail!(
            "{}: names no class; R8 writes it to app/build/outputs/mapping/BUILD/mapping.txt",
            mapping.display()
        );
    }
    Ok(retrace)
}

/// Replaces the names in a trace. Gives how many methods have another one now.
pub(super) fn replace(trace: &[u8], retrace: &Retrace) -> Result<(Vec<u8>, usize)> {
    let (mut renamed, mut out) = (0, Vec::with_capacity(trace.len()));
    for item in PacketReader::new(trace) {
        let (_, mut packet) = item.context("the fetched trace is damaged")?;
        if let Some(packet::Body::Methods(methods)) = &mut packet.body {
            renamed += rename(methods, retrace);
        }
        write_packet(&packet, &mut out);
    }
    Ok((out, renamed))
}

fn rename(methods: &mut Methods, retrace: &Retrace) -> usize {
    let mut renamed = 0;
    for method in &mut methods.methods {
        let name = methods.strings.get(method.name as usize);
        if let Some(new) = name.and_then(|name| retrace.qualified(name)) {
            // Others may share the string.
            method.name = methods.strings.len() as u32;
            methods.strings.push(new);
            renamed += 1;
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackbeat_proto::v1::{Packet, methods::Method};

    #[test]
    fn methods_get_the_names_of_the_source() {
        let strings = ["", "a.b.a", "java.lang.Object.wait"].map(str::to_owned);
        let method = |number, name| Method {
            number,
            name,
            ..Method::default()
        };
        let packet = Packet {
            body: Some(packet::Body::Methods(Methods {
                strings: strings.to_vec(),
                methods: vec![method(1, 1), method(2, 2)],
            })),
        };
        let mut trace = Vec::new();
        write_packet(&packet, &mut trace);
        let retrace = Retrace::parse("com.example.Server -> a.b:\n    void serve(int) -> a\n");
        let (new, renamed) = replace(&trace, &retrace).unwrap();
        assert_eq!(renamed, 1);
        let (_, packet) = PacketReader::new(&new[..]).next().unwrap().unwrap();
        let Some(packet::Body::Methods(methods)) = packet.body else {
            panic!("{packet:?}");
        };
        let names: Vec<&str> = (methods.methods.iter())
            .map(|m| methods.strings[m.name as usize].as_str())
            .collect();
        assert_eq!(names, ["com.example.Server.serve", "java.lang.Object.wait"]);
    }
}
