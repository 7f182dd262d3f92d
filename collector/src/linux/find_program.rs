//! Finds the program as `execvp` would and says beforehand what its recording will not see: static,
//! privileged and foreign executables.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, getxattr_query};
use rustix::process::{getgid, getuid};

use crate::session::error::{RecordError, Warning};
use crate::session::options::Options;

/// `e_machine` of the running machine (gabi, ELF header).
#[cfg(target_arch = "x86_64")]
const NATIVE_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const NATIVE_MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NATIVE_MACHINE: u16 = 0;

/// Scripts may name scripts as interpreters; the kernel follows this many (BINPRM limit in fs/exec.c).
const MAX_INTERPRETERS: usize = 5;

/// The program to start.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    warnings: Vec<Warning>,
    preload: bool,
}

impl Program {
    /// The file to execute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the recording will not see.
    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether its dynamic loader takes the agent silently. Another machine's loader would complain on
    /// stderr, Android's would refuse to start.
    pub(crate) fn preload(&self) -> bool {
        self.preload
    }
}

/// Looks the command up and judges it.
pub(crate) fn resolve(options: &Options) -> Result<Program, RecordError> {
    let name = options.command.first().ok_or(RecordError::NoCommand)?;
    let path = if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        executable(&path)?;
        path
    } else {
        look_up(name, std::env::var_os("PATH"))?
    };
    let mut preload = true;
    let mut warnings = Vec::new();
    if let Some(warning) = judge(&path, &options.command[1..], 0, &mut preload)? {
        warnings.push(warning);
    }
    Ok(Program {
        path,
        warnings,
        preload,
    })
}

/// Refuses an agent that the dynamic loader would not take: LD_PRELOAD is a list with spaces and colons
/// between its items (ld.so(8)).
pub(crate) fn check_agent(agent: &Path) -> Result<(), RecordError> {
    let refuse = |reason| RecordError::Agent {
        path: agent.to_path_buf(),
        reason,
    };
    if !agent.is_absolute() {
        return Err(refuse("its path is not absolute"));
    }
    if agent
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| b" :\t\n".contains(b))
    {
        return Err(refuse("its path contains a space or a colon"));
    }
    match File::open(agent) {
        Ok(_) => Ok(()),
        Err(_) => Err(refuse("it cannot be read")),
    }
}

/// The first executable of this name in PATH. Like `execvp`, goes on past files that may not be executed.
fn look_up(name: &OsStr, path: Option<OsString>) -> Result<PathBuf, RecordError> {
    // glibc's default when PATH is not set (confstr _CS_PATH).
    let path = path.unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut refused = None;
    for folder in path.as_bytes().split(|b| *b == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let candidate = Path::new(OsStr::from_bytes(folder)).join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(e @ RecordError::NotExecutable { .. }) => refused = Some(e),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| RecordError::NotFound {
        program: name.to_string_lossy().into_owned(),
    }))
}

/// Whether the file exists and may be executed.
fn executable(path: &Path) -> Result<(), RecordError> {
    let path_buf = || path.to_path_buf();
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            RecordError::NoSuchFile { path: path_buf() }
        }
        _ => RecordError::Start {
            program: path_buf(),
            source,
        },
    })?;
    if metadata.is_dir() {
        return Err(RecordError::Directory { path: path_buf() });
    }
    /// <fcntl.h>; `libc` and rustix lack it for Android.
    const AT_EACCESS: u32 = 0x200;
    let flags = AtFlags::from_bits_retain(AT_EACCESS);
    let allowed = accessat(CWD, path, Access::EXEC_OK, flags).is_ok();
    // Root passes access(X_OK) only when some execute bit is set; faccessat says the same.
    if allowed && metadata.is_file() {
        Ok(())
    } else {
        Err(RecordError::NotExecutable { path: path_buf() })
    }
}

/// What stands in the way of hooks in this executable, if anything.
fn judge(
    path: &Path,
    arguments: &[OsString],
    level: usize,
    preload: &mut bool,
) -> Result<Option<Warning>, RecordError> {
    // An executable that may not be read can still be started.
    let Ok(file) = File::open(path) else {
        return Ok(None);
    };
    let mut head = [0u8; 256];
    let length = file.read_at(&mut head, 0).unwrap_or(0);
    let head = &head[..length];
    if let Some(line) = head.strip_prefix(b"#!") {
        if level >= MAX_INTERPRETERS {
            return Ok(None);
        }
        return judge_script(path, line, arguments, level, preload);
    }
    if privileged(path) {
        return Ok(Some(Warning::Privileged(path.to_path_buf())));
    }
    Ok(judge_elf(path, &file, head, preload))
}

/// A script is seen as far as its interpreter is; `env` hands over to the program that it is given.
fn judge_script(
    path: &Path,
    line: &[u8],
    arguments: &[OsString],
    level: usize,
    preload: &mut bool,
) -> Result<Option<Warning>, RecordError> {
    let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
    let mut words = line
        .split(|b| *b == b' ' || *b == b'\t')
        .filter(|w| !w.is_empty());
    let Some(interpreter) = words.next() else {
        return Ok(None);
    };
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    if !interpreter.exists() {
        return Err(RecordError::NoInterpreter {
            script: path.to_path_buf(),
            interpreter: interpreter.to_path_buf(),
        });
    }
    let mut found = judge(interpreter, arguments, level + 1, preload)?;
    if found.is_none() && interpreter.file_name() == Some(OsStr::new("env")) {
        let target = words.find(|w| !w.starts_with(b"-") && !w.contains(&b'='));
        if let Some(target) = target
            && let Ok(target) = look_up(OsStr::from_bytes(target), std::env::var_os("PATH"))
        {
            // `env` itself takes the preload; what it starts is only warned about.
            found = judge(&target, arguments, level + 1, &mut true)?;
        }
    }
    Ok(found.map(|because| Warning::Interpreter {
        script: path.to_path_buf(),
        because: Box::new(because),
    }))
}

/// Whether the kernel will set AT_SECURE, so that the loader drops the preload (fs/exec.c,
/// security/commoncap.c: identities that change, or capabilities gained by a user who is not root).
pub(crate) fn privileged(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let mode = metadata.mode();
    if mode & libc::S_ISUID != 0 && metadata.uid() != uid {
        return true;
    }
    // Set-group-id without the group's execute bit means mandatory locking, not a change of group.
    let setgid = libc::S_ISGID | libc::S_IXGRP;
    if mode & setgid == setgid && metadata.gid() != gid {
        return true;
    }
    uid != 0 && has_capabilities(path)
}

fn has_capabilities(path: &Path) -> bool {
    getxattr_query(path, c"security.capability").is_ok_and(|bytes| bytes > 0)
}

/// Reads the ELF header and the program headers (gabi). Files that are no ELF are left to the kernel.
pub(crate) fn judge_elf(
    path: &Path,
    file: &File,
    head: &[u8],
    preload: &mut bool,
) -> Option<Warning> {
    if head.len() < 64 || &head[..4] != b"\x7fELF" {
        return None;
    }
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let machine = u16_at(18);
    let is_64_bit = head[4] == 2;
    let is_little_endian = head[5] == 1;
    if !is_64_bit || !is_little_endian || machine != NATIVE_MACHINE {
        *preload = false;
        return Some(Warning::Architecture {
            path: path.to_path_buf(),
            machine: machine_name(machine, is_64_bit, is_little_endian),
        });
    }
    let table = u64::from_le_bytes(head[32..40].try_into().ok()?);
    let entry_bytes = u64::from(u16_at(54));
    let mut interpreter = None;
    for i in 0..u64::from(u16_at(56)) {
        let mut entry = [0u8; 56];
        let offset = table.checked_add(i.checked_mul(entry_bytes)?)?;
        file.read_exact_at(&mut entry, offset).ok()?;
        const PT_INTERP: u32 = 3;
        if u32::from_le_bytes(entry[..4].try_into().ok()?) == PT_INTERP {
            interpreter = read_interpreter(file, &entry);
        }
    }
    let Some(interpreter) = interpreter else {
        return Some(Warning::Static(path.to_path_buf()));
    };
    let loader = Path::new(OsStr::from_bytes(&interpreter)).file_name()?;
    if loader.as_bytes().starts_with(b"ld-musl") || loader.as_bytes().starts_with(b"linker") {
        // musl's loads the agent, which is off there, for the children.
        *preload &= loader.as_bytes().starts_with(b"ld-musl");
        return Some(Warning::OtherLoader {
            path: path.to_path_buf(),
            loader: loader.to_string_lossy().into_owned(),
        });
    }
    None
}

/// What stands in the way, as part of a sentence about a process that runs already.
pub(crate) fn obstacle(warning: &Warning) -> String {
    match warning {
        Warning::Static(path) => format!(
            "{} is statically linked: there is no dynamic linker in it to load the agent",
            path.display()
        ),
        Warning::Architecture { path, machine } => {
            format!("{} is built for {machine}", path.display())
        }
        Warning::OtherLoader { path, loader } => format!(
            "{} uses the dynamic loader {loader}, not glibc's",
            path.display()
        ),
        other => other.to_string(),
    }
}

fn read_interpreter(file: &File, entry: &[u8; 56]) -> Option<Vec<u8>> {
    let offset = u64::from_le_bytes(entry[8..16].try_into().ok()?);
    let bytes = u64::from_le_bytes(entry[32..40].try_into().ok()?);
    let mut name = vec![0u8; usize::try_from(bytes.min(4096)).ok()?];
    file.read_exact_at(&mut name, offset).ok()?;
    name.truncate(name.iter().position(|b| *b == 0).unwrap_or(name.len()));
    Some(name)
}

fn machine_name(machine: u16, is_64_bit: bool, is_little_endian: bool) -> String {
    let name = match machine {
        3 => "i386",
        8 => "MIPS",
        21 => "PowerPC 64",
        22 => "s390",
        40 => "arm",
        62 if !is_64_bit => "x32",
        62 => "x86-64",
        183 => "arm64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ if !is_little_endian => "another, big-endian machine",
        _ => return format!("another machine (ELF number {machine})"),
    };
    name.to_owned()
}
