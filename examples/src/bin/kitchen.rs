//! `kitchen [ORDERS]`: see the library's `kitchen` module for what a trace of it shows.

use std::process::ExitCode;

fn main() -> ExitCode {
    let orders = match std::env::args().nth(1).map(|text| text.parse()) {
        None => stackbeat_examples::kitchen::DEFAULT_ORDERS,
        Some(Ok(orders)) => orders,
        Some(Err(error)) => {
            eprintln!(
                "kitchen: the number of orders: {error}; give a whole number, e.g. kitchen 200"
            );
            return ExitCode::from(2);
        }
    };
    match stackbeat_examples::kitchen::run(orders) {
        Ok(served) => {
            println!("{served}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("kitchen: {error}");
            ExitCode::from(2)
        }
    }
}
