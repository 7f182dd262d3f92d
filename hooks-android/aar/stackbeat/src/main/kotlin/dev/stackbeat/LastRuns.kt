package dev.stackbeat

import android.app.ActivityManager
import android.content.Context
import android.os.Build
import android.util.Log
import java.io.File

/** Runs that were killed. */
internal object LastRuns {
    /** Of the log. */
    const val TAG = "stackbeat"

    /** Completes their traces, and tells of each. */
    fun save(context: Context, folder: String, onLastRun: ((LastRun) -> Unit)?) {
        for (run in parse(context, Native.save(folder))) {
            val (records, lost) = Pair(run.records, run.lost)
            Log.i(TAG, "process ${run.pid} ended in ${run.trace}: $records records, $lost lost. ${run.reason}")
            if (run.blockedMs > 0) {
                Log.w(TAG, "its main thread had waited for ${run.blockedMs} ms: ${run.waits.first().call}")
            }
            onLastRun?.invoke(run)
        }
    }

    /** What the library says (hooks-android/app/src/last_run.rs), and how Android says they ended. */
    private fun parse(context: Context, text: String): List<LastRun> {
        val runs = ArrayList<LastRun>()
        var waits = ArrayList<LastWait>()
        for (line in text.lines()) {
            val fields = line.split('\t', limit = 6)
            when (fields[0]) {
                "run" -> {
                    waits = ArrayList()
                    runs.add(run(context, fields, waits))
                }
                "wait" -> waits.add(
                    LastWait(fields[1].toInt(), fields[2] == "1", fields[3], fields[4].toInt(), fields[5].toLong())
                )
            }
        }
        return runs
    }

    private fun run(context: Context, fields: List<String>, waits: List<LastWait>): LastRun {
        val pid = fields[1].toInt()
        val exit = exit(context, pid)
        return LastRun(pid, File(fields[4]), fields[2].toLong(), fields[3].toLong(), waits, exit.first, exit.second)
    }

    /** Why a process of this app ended, and when. */
    private fun exit(context: Context, pid: Int): Pair<String, Long> {
        if (Build.VERSION.SDK_INT < 30) return Pair("", 0)
        val manager = context.getSystemService(Context.ACTIVITY_SERVICE) as ActivityManager?
        val exits = manager?.getHistoricalProcessExitReasons(context.packageName, pid, 1)
        val exit = exits?.firstOrNull() ?: return Pair("", 0)
        return Pair("reason ${exit.reason}: ${exit.description ?: ""}", exit.timestamp)
    }
}
