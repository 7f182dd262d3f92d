//! A kitchen: a waiter brings orders, four cooks prepare them, an accountant counts the pantry.
//!
//! What a trace of it shows:
//!
//! - `cook-0` … `cook-3` compute in `chop_vegetables` and `knead_dough` (CPU), allocate in `plate_dish`,
//!   and write and sync a receipt in `print_receipt` (blocked: io).
//! - At most orders they are blocked in `take_ingredient` (blocked: lock). The holder is `accountant`, which
//!   keeps the pantry locked while it counts in `count_pantry`, half of the time.
//! - `waiter` sleeps in `walk_to_the_table` (blocked: sleep) most of the time.
//! - When the waiter is slow, the cooks wait for orders in `next_order` (blocked: wait).
//! - `main` waits for the others to end (blocked: join).

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Orders that `run` is usually given: about two seconds of work on two cores.
pub const DEFAULT_ORDERS: u32 = 400;

const COOKS: u32 = 4;

struct Order {
    number: u32,
}

#[derive(Default)]
struct Counter {
    orders: VecDeque<Order>,
    closed: bool,
}

struct Kitchen {
    counter: Mutex<Counter>,
    order_came: Condvar,
    pantry: Mutex<BTreeMap<String, u64>>,
    closing: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves so many orders. Gives a line that says what was served; it is the same in every run.
///
/// # Errors
///
/// When receipts cannot be written to the temporary folder, or no thread can be started.
pub fn run(orders: u32) -> io::Result<String> {
    let kitchen = Kitchen {
        counter: Mutex::default(),
        order_came: Condvar::new(),
        pantry: Mutex::new(stock_pantry()),
        closing: AtomicBool::new(false),
    };
    let mut receipts = Vec::new();
    for _ in 0..COOKS {
        receipts.push(Receipts::new()?);
    }
    thread::scope(|scope| {
        let cooks: Vec<_> = receipts
            .into_iter()
            .enumerate()
            .map(|(i, receipts)| {
                let kitchen = &kitchen;
                thread::Builder::new()
                    .name(format!("cook-{i}"))
                    .spawn_scoped(scope, move || cook(kitchen, receipts))
            })
            .collect();
        let accountant = thread::Builder::new()
            .name("accountant".into())
            .spawn_scoped(scope, || accountant(&kitchen));
        let waiter = thread::Builder::new()
            .name("waiter".into())
            .spawn_scoped(scope, || waiter(&kitchen, orders));
        // Without a waiter nobody would ever close the counter.
        if waiter.is_err() {
            close(&kitchen);
        }
        let mut served = Served::default();
        let mut failure = None;
        for cook in cooks {
            match cook.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(Ok(part))) => served.add(&part),
                Ok(Ok(Err(error))) | Err(error) => failure = Some(error),
                Ok(Err(_)) => failure = Some(io::Error::other("a cook panicked")),
            }
        }
        kitchen.closing.store(true, Ordering::Relaxed);
        accountant?;
        waiter?;
        match failure {
            Some(error) => Err(error),
            None => Ok(format!(
                "served {} dishes, {} pieces, check {:016x}",
                served.dishes, served.pieces, served.check
            )),
        }
    })
}

#[derive(Default)]
struct Served {
    dishes: u64,
    pieces: u64,
    check: u64,
}

impl Served {
    fn add(&mut self, other: &Served) {
        self.dishes += other.dishes;
        self.pieces += other.pieces;
        self.check = self.check.wrapping_add(other.check);
    }
}

#[inline(never)]
fn stock_pantry() -> BTreeMap<String, u64> {
    (0..2000)
        .map(|i| (format!("ingredient {i}"), 1_000_000))
        .collect()
}

#[inline(never)]
fn waiter(kitchen: &Kitchen, orders: u32) {
    for number in 0..orders {
        if number % 8 == 0 {
            walk_to_the_table();
        }
        lock(&kitchen.counter).orders.push_back(Order { number });
        kitchen.order_came.notify_one();
    }
    close(kitchen);
}

fn close(kitchen: &Kitchen) {
    lock(&kitchen.counter).closed = true;
    kitchen.order_came.notify_all();
}

#[inline(never)]
fn walk_to_the_table() {
    thread::sleep(Duration::from_millis(20));
}

#[inline(never)]
fn accountant(kitchen: &Kitchen) {
    while !kitchen.closing.load(Ordering::Relaxed) {
        black_box(count_pantry(&lock(&kitchen.pantry)));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Work under the pantry's lock, and a walk along the shelves: on one processor, too, the cooks come by
/// meanwhile.
#[inline(never)]
fn count_pantry(pantry: &BTreeMap<String, u64>) -> u64 {
    thread::sleep(Duration::from_millis(5));
    let mut sum = 0u64;
    for _ in 0..50 {
        for (name, amount) in pantry {
            sum = sum.wrapping_add(amount ^ name.len() as u64);
        }
        sum = black_box(sum);
    }
    sum
}

#[inline(never)]
fn cook(kitchen: &Kitchen, mut receipts: Receipts) -> io::Result<Served> {
    let mut served = Served::default();
    while let Some(order) = next_order(kitchen) {
        take_ingredient(kitchen, order.number);
        let pieces = chop_vegetables(order.number);
        let dough = knead_dough(order.number);
        let dish = plate_dish(order.number, pieces);
        served.dishes += 1;
        served.pieces += dish.len() as u64;
        served.check = served.check.wrapping_add(dough ^ pieces);
        if order.number % 4 == 0 {
            receipts.print_receipt(&order, dish.len())?;
        }
    }
    Ok(served)
}

#[inline(never)]
fn next_order(kitchen: &Kitchen) -> Option<Order> {
    let mut counter = lock(&kitchen.counter);
    loop {
        if let Some(order) = counter.orders.pop_front() {
            return Some(order);
        }
        if counter.closed {
            return None;
        }
        counter = kitchen
            .order_came
            .wait(counter)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

#[inline(never)]
fn take_ingredient(kitchen: &Kitchen, number: u32) {
    let name = format!("ingredient {}", number % 2000);
    if let Some(amount) = lock(&kitchen.pantry).get_mut(&name) {
        *amount -= 1;
    }
}

/// Compute-bound; passes no hook.
#[inline(never)]
fn chop_vegetables(number: u32) -> u64 {
    let mut x = u64::from(number) | 1;
    for _ in 0..black_box(900_000) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x % 97
}

/// Recursive compute: a deep stack.
#[inline(never)]
fn knead_dough(number: u32) -> u64 {
    fn fold(depth: u32, value: u64) -> u64 {
        let mut x = value;
        for _ in 0..black_box(15_000) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        if depth == 0 {
            x
        } else {
            fold(depth - 1, x).wrapping_add(1)
        }
    }
    black_box(fold(40, u64::from(number)))
}

/// Allocation-heavy: thousands of short strings.
#[inline(never)]
fn plate_dish(number: u32, pieces: u64) -> Vec<String> {
    let mut dish = Vec::new();
    for piece in 0..2000 + pieces {
        dish.push(format!("order {number} piece {piece}"));
    }
    dish.sort_by_key(|piece| piece.len());
    dish
}

/// A file in the temporary folder that has no name any more.
struct Receipts {
    file: File,
}

impl Receipts {
    fn new() -> io::Result<Receipts> {
        let path = std::env::temp_dir().join(format!(
            "kitchen-receipts-{}-{:?}",
            std::process::id(),
            std::time::Instant::now()
        ));
        let file = File::create_new(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Receipts { file })
    }

    #[inline(never)]
    fn print_receipt(&mut self, order: &Order, pieces: usize) -> io::Result<()> {
        writeln!(self.file, "order {}: {pieces} pieces", order.number)?;
        self.file.sync_all()
    }
}
