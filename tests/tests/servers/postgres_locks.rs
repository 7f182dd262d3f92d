//! Who makes whom wait in PostgreSQL, where it was taken care that one session waits for another.

use super::*;
use stackbeat_tests::wait_until;
use std::io::Write;
use std::process::{Child, Stdio};

/// A client's session that takes orders.
pub(super) struct Client(Child);

impl Client {
    pub(super) fn new(server: &Server) -> Client {
        let host = server.address().host();
        let mut psql = server
            .address()
            .client(["psql", "-qAt", "-h", &host, "-U", "postgres"]);
        psql.stdin(Stdio::piped()).stdout(Stdio::null());
        Client(psql.spawn().expect("psql starts"))
    }

    pub(super) fn says(&mut self, sql: &str) {
        let input = self.0.stdin.as_mut().expect("is piped");
        writeln!(input, "{sql}").expect("it listens");
    }

    pub(super) fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("ends").success());
    }

    /// The server is not there for it any more.
    pub(super) fn fails(mut self) {
        drop(self.0.stdin.take());
        assert!(!self.0.wait().expect("ends").success());
    }
}

/// What a query of somebody else gives.
pub(super) fn ask(server: &Server, sql: &str) -> String {
    let host = server.address().host();
    let command = ["psql", "-qAt", "-h", &host, "-U", "postgres", "-c", sql];
    server.address().tell(command).trim().to_owned()
}

pub(super) fn pid_of(server: &Server, name: &str) -> u64 {
    let sql = format!("select pid from pg_stat_activity where application_name = '{name}'");
    let mut pid = None;
    wait_until("the session is there", || {
        pid = ask(server, &sql).parse().ok();
        pid.is_some()
    });
    pid.expect("was found")
}

/// The holder's backend wakes the waiter's when its transaction ends.
#[test]
fn a_backend_that_waits_for_a_table_waits_for_who_locked_it() {
    const ROUNDS: usize = 5;
    let server = Server::recorded(Kind::Postgres, &[]);
    let (mut holder, mut waiter) = (Client::new(&server), Client::new(&server));
    holder.says("set application_name = 'holder';");
    waiter.says("set application_name = 'waiter';");
    let (holds, waits) = (pid_of(&server, "holder"), pid_of(&server, "waiter"));
    let waiting = "select count(*) from pg_locks where not granted";
    let holding = "select count(*) from pg_locks where granted and mode = 'AccessExclusiveLock' \
         and relation = 'pgbench_branches'::regclass";
    for _ in 0..ROUNDS {
        holder.says("begin; lock table pgbench_branches;");
        wait_until("it holds the lock", || ask(&server, holding) == "1");
        waiter.says("begin; lock table pgbench_branches; commit;");
        wait_until("the other waits", || ask(&server, waiting) == "1");
        holder.says("commit;");
        wait_until("nobody holds it", || {
            ask(&server, holding) == "0" && ask(&server, waiting) == "0"
        });
    }
    holder.end();
    waiter.end();
    let ended = server.end();
    let report = report(&ended.trace());
    let utid_of = |pid: u64| {
        let mut threads = array(&report, "threads");
        let thread = threads.find(|thread| number(thread, "pid") == pid);
        number(thread.expect("is recorded"), "utid")
    };
    let (holder, waiter) = (utid_of(holds), utid_of(waits));
    let by_holder = array(&report["waits"], "pairs")
        .filter(|pair| pair["utid"] == waiter && pair["waker_utid"] == holder);
    let by_holder: u64 = by_holder.map(|pair| number(pair, "count")).sum();
    assert!(
        by_holder >= ROUNDS as u64,
        "{by_holder} of {ROUNDS} ended by {holder}: {:#}",
        report["waits"]["pairs"]
    );
}
