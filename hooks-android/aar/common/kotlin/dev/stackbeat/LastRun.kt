package dev.stackbeat

import java.io.File

/** A run of the app that was recorded and killed. Its trace is complete now. */
class LastRun internal constructor(
    val pid: Int,
    val trace: File,
    /** Records in the trace, and those that are lost. */
    val records: Long,
    val lost: Long,
    /** Threads that waited when the run ended, the main thread first. */
    val waits: List<LastWait>,
    /** How it ended, as Android says it (from 11 on), and when, in milliseconds of the epoch; empty and 0: not known. */
    val reason: String,
    val endedMs: Long,
) {
    /** How long the main thread had waited when the run ended, other than for messages, in milliseconds; 0: it had not, or not known. */
    val blockedMs: Long
        get() {
            val main = waits.firstOrNull { it.isMain }
            return if (main == null || main.isIdle || endedMs < main.sinceMs) 0 else endedMs - main.sinceMs
        }
}

/** A thread that waited when its process ended. */
class LastWait internal constructor(
    val tid: Int,
    val isMain: Boolean,
    /** The call: `monitor enter`, `pthread_mutex_lock`, … */
    val call: String,
    /** The thread that held the lock; 0: not known. */
    val ownerTid: Int,
    /** When the wait began, in milliseconds of the epoch. */
    val sinceMs: Long,
) {
    /** A message loop waits so. */
    internal val isIdle get() = call == "epoll_wait" || call == "poll"
}
