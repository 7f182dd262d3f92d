//! The ART of this process: its functions, as far as they were found.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::{Error, ErrorKind, Result};

use super::symbols::{Library, Symbols};
use super::versions::{self, Function, ROWS};

/// Where ART's functions are.
#[derive(Debug)]
pub struct Art {
    /// The Android version that its functions are those of.
    pub version: u8,
    /// Its code, from and to.
    pub code: (u64, u64),
    functions: BTreeMap<Function, (u64, u64)>,
}

impl Art {
    /// That of this process.
    ///
    /// # Errors
    /// When there is none, or its file cannot be read.
    pub fn find() -> Result<Art> {
        let library = Library::loaded("libart.so")
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "no libart.so is loaded"))?;
        let names: Vec<&str> = ROWS.iter().flat_map(|row| row.names()).collect();
        let symbols = Symbols::of_file(&library.path, &names)?;
        let version = versions::of_library(|name| symbols.get(name).is_some())
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "no version fits"))?;
        let found = |row: &versions::Row| {
            let (address, size) = row.names().find_map(|name| symbols.get(name))?;
            Some((row.function, (library.bias.wrapping_add(address), size)))
        };
        let rows = ROWS.iter().filter(|row| row.is_of(version));
        Ok(Art {
            version,
            code: library.code,
            functions: rows.filter_map(found).collect(),
        })
    }

    /// Where a function is; `None`: this library does not have it.
    pub fn address(&self, function: Function) -> Option<*mut c_void> {
        self.code_of(function).map(|(address, _)| address)
    }

    /// Where a function is, and how many bytes it has (0: not known).
    pub fn code_of(&self, function: Function) -> Option<(*mut c_void, usize)> {
        let (address, size) = *self.functions.get(&function)?;
        let address = usize::try_from(address).ok()?;
        let size = usize::try_from(size).ok()?;
        Some((core::ptr::with_exposed_provenance_mut(address), size))
    }

    /// The functions of this version that the library does not have.
    pub fn lacking(&self) -> Vec<Function> {
        let rows = ROWS.iter().filter(|row| row.is_of(self.version));
        let lacking = rows.filter(|row| !self.functions.contains_key(&row.function));
        lacking.map(|row| row.function).collect()
    }
}
