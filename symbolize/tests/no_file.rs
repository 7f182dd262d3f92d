//! Code that no file holds: the vdso and the signal trampoline.

use super::*;
use stackbeat_core::ids::Upid;

#[test]
fn the_vdso_is_named() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let symbolizer = Symbolizer::new(Options::default());
    let module = v1::Module {
        upid: 1,
        path: "[vdso]".into(),
        start,
        end: start + 0x4000,
        bias: start,
        ..Default::default()
    };
    let queries: Vec<Query> = (0..0x1000)
        .map(|offset| Query {
            upid: Upid(1),
            epoch: 0,
            address: start + offset,
            kind: NodeKind::LeafPc,
        })
        .collect();
    let mut names = std::collections::BTreeSet::new();
    symbolizer.symbolize(wanted(&[module], &queries), &mut |_| true, &mut |packet| {
        names.extend(
            packet
                .functions
                .iter()
                .map(|f| packet.strings[f.name as usize].clone()),
        );
    });
    assert!(
        names.iter().any(|name| name.ends_with("clock_gettime")),
        "{names:?}"
    );
}

#[test]
fn the_frame_below_a_signal_handler_is_the_trampoline() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    // mov $15, %rax; syscall: the trampoline's only instructions.
    let code = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let bytes = std::fs::read(libc).unwrap();
    let at = bytes.windows(code.len()).position(|w| w == code).unwrap() as u64;
    let found = look_up(
        libc,
        vec![],
        &[at],
        NodeKind::Native,
        options(Path::new("/nonexistent")),
    );
    assert_eq!(found.frames[&at][0].0, "<signal handler called>");
}
