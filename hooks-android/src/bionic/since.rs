//! Which Android has which of the functions, by API level.
//!
//! Source: libc/libc.map.txt of bionic at 731631f300090436d7f5df80d50b6275c8c60a93, for arm64.

/// The first API level with 64-bit devices. What [`LATER`] does not name has been there since.
pub const FIRST: u32 = 21;

/// Functions that came later, and when.
pub const LATER: &[(u32, &[&str])] = &[
    (
        23,
        &[
            "__poll_chk",
            "__ppoll_chk",
            "__pread64_chk",
            "__pread_chk",
            "gethostbyaddr_r",
            "gethostbyname2_r",
            "posix_madvise",
        ],
    ),
    (
        24,
        &[
            "lockf",
            "lockf64",
            "preadv",
            "preadv64",
            "pthread_spin_lock",
            "pthread_spin_trylock",
            "pwritev",
            "pwritev64",
        ],
    ),
    (
        26,
        &["msgrcv", "msgsnd", "semop", "semtimedop", "sync_file_range"],
    ),
    (
        28,
        &[
            "aligned_alloc",
            "fexecve",
            "getrandom",
            "posix_spawn",
            "posix_spawnp",
            "syncfs",
        ],
    ),
    (29, &["timespec_get"]),
    (
        30,
        &[
            "cnd_broadcast",
            "cnd_signal",
            "cnd_timedwait",
            "cnd_wait",
            "mtx_lock",
            "mtx_timedlock",
            "mtx_trylock",
            "mtx_unlock",
            "pthread_cond_clockwait",
            "pthread_mutex_clocklock",
            "pthread_rwlock_clockrdlock",
            "pthread_rwlock_clockwrlock",
            "sem_clockwait",
            "statx",
            "thrd_join",
            "thrd_yield",
        ],
    ),
    (33, &["preadv2", "preadv64v2", "pwritev2", "pwritev64v2"]),
    (34, &["copy_file_range"]),
];

/// The API level since which bionic has a function of [`super::table`].
pub fn since(name: &str) -> u32 {
    let later = LATER.iter().find(|(_, names)| names.contains(&name));
    later.map_or(FIRST, |(level, _)| *level)
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_came_later_is_in_the_table() {
        let all: BTreeSet<&str> = table::functions().flat_map(table::names).collect();
        assert!(all.len() > 130, "{}", all.len());
        for (level, names) in LATER {
            assert!(*level > FIRST);
            let missing: Vec<_> = names.iter().filter(|name| !all.contains(*name)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
        assert_eq!((since("read"), since("mtx_lock")), (21, 30));
    }
}
