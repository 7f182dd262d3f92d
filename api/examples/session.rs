//! A program that records itself while it does what matters.
//!
//!     cargo run --example session -- FOLDER OUTPUT
//!
//! FOLDER has `libstackbeat.so` and `libstackbeat_session.so`, OUTPUT is the absolute path of the trace.

use std::error::Error;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let mut next = || arguments.next().ok_or("give FOLDER and OUTPUT");
    let (folder, output) = (next()?, next()?);
    let [folder, output] = [folder, output].map(|path| CString::new(path.into_vec()));
    stackbeat_api::session_start(&folder?, &output?)?;
    let primes = count_primes();
    stackbeat_api::counter("primes", primes);
    stackbeat_api::session_stop()?;
    println!("{primes} primes");
    Ok(())
}

/// Of what can be counted in half a second.
#[inline(never)]
fn count_primes() -> i64 {
    let _scope = stackbeat_api::scope("count primes");
    let begin = Instant::now();
    let numbers = (2u32..).take_while(|_| begin.elapsed() < Duration::from_millis(500));
    let primes = numbers.filter(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    primes.count() as i64
}
