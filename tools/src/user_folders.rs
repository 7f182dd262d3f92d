//! Folders of this user: those that nobody else can write to, and what is kept of names.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use stackbeat_symbolize::SymbolCache;

/// Makes the folder, or checks that an existing one is ours alone.
pub(crate) fn private_folder(folder: &Path) -> Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    // Programs that root starts under another identity must be able to load what root extracted;
    // root's files cannot be replaced by them all the same.
    let mode = if uid == 0 { 0o755 } else { 0o700 };
    match DirBuilder::new().recursive(false).mode(mode).create(folder) {
        // Whatever the umask says.
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(mode))?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // ~/.cache of a new user.
            let parent = folder.parent().context("has no parent")?;
            DirBuilder::new().mode(0o700).create(parent)?;
            DirBuilder::new().mode(mode).create(folder)?;
        }
        Err(e) => return Err(e.into()),
    }
    if !is_private(folder)? {
        bail!("exists and is not a private folder of this user");
    }
    Ok(())
}

/// Whether only this user can write to the folder.
pub(crate) fn is_private(folder: &Path) -> io::Result<bool> {
    let uid = rustix::process::geteuid().as_raw();
    let metadata = fs::symlink_metadata(folder)?;
    Ok(metadata.is_dir() && metadata.uid() == uid && metadata.mode() & 0o022 == 0)
}

/// What of names is kept from one recording to the next.
pub(crate) fn symbol_cache(is_unwanted: bool) -> Option<SymbolCache> {
    (!is_unwanted).then(SymbolCache::of_user).flatten()
}
