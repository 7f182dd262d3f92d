package dev.stackbeat

import android.content.Context
import android.util.Log
import java.io.File

/**
 * Records the app it is in. Nothing here throws: what fails is in the log, under `stackbeat`.
 *
 * Traces are in `files/stackbeat`, the newest few of them.
 */
object Stackbeat {
    /** Numbers of stackbeat.v1.Event.Kind. */
    private const val MARK = 0
    private const val SCOPE_BEGIN = 1
    private const val SCOPE_END = 2
    private const val COUNTER = 10

    private var folder: String? = null

    /** Once the library is there. Before, events cost one comparison. */
    @Volatile
    private var isLoaded = false

    /**
     * Call it in `Application.onCreate`, or as early as `attachBaseContext`. Records from here on if the device's properties ask for
     * this app (`stackbeat android record`). Traces of runs that were killed are completed meanwhile; [onLastRun] gets each of them,
     * in a thread of its own.
     */
    @JvmStatic
    @JvmOverloads
    fun init(context: Context, onLastRun: ((LastRun) -> Unit)? = null) {
        val folder = File(context.filesDir, "stackbeat").path
        guarded {
            System.loadLibrary("stackbeat_app")
            this.folder = folder
            isLoaded = true
            Native.start(folder, true, false)?.let { Log.i(LastRuns.TAG, "records into $it") }
        }
        if (!isLoaded) return
        Thread({ guarded { LastRuns.save(context, folder, onLastRun) } }, "stackbeat-save").start()
    }

    /**
     * Begins to record. The trace, which is complete after [stop]; null: it does not, or recorded already. With [inMemory] records
     * have no file until they are in the trace: no write waits for a disk, and what is not in the trace yet is gone if the app is killed.
     */
    @JvmStatic
    @JvmOverloads
    fun start(inMemory: Boolean = false): File? {
        val folder = folder ?: return null
        return guarded { Native.start(folder, false, inMemory)?.let(::File) }
    }

    /** Ends the recording. The trace, which is complete; null: there was none. The app runs on without hooks. */
    @JvmStatic
    fun stop(): File? = if (isLoaded) guarded { Native.stop()?.let(::File) } else null

    /** Writes what was recorded so far, or its last milliseconds, into a trace of its own. False: there is no recording. */
    @JvmStatic
    @JvmOverloads
    fun dump(file: File, lastMs: Long = 0): Boolean =
        isLoaded && guarded { Native.dump(file.absolutePath, lastMs); true } == true

    /**
     * What became of each hook of the running recording, a line each: in place, by which means, or why not. Tries some of them in a
     * thread of its own, which takes some 50 ms. Empty: there is no recording.
     */
    @JvmStatic
    fun doctor(): String = (if (isLoaded) guarded { Native.doctor() } else null) ?: ""

    /** A scope of this thread, as long as the block runs. */
    inline fun <T> scope(name: String, block: () -> T): T {
        beginScope(name)
        try {
            return block()
        } finally {
            endScope()
        }
    }

    /** A scope of this thread begins; scopes nest. */
    @JvmStatic
    fun beginScope(name: String) = event(SCOPE_BEGIN, name, 0)

    /** The innermost scope of this thread ends. */
    @JvmStatic
    fun endScope() = event(SCOPE_END, null, 0)

    /** Something happened now. */
    @JvmStatic
    fun mark(name: String) = event(MARK, name, 0)

    /** A counter of the app has this value from now on. */
    @JvmStatic
    fun counter(name: String, value: Long) = event(COUNTER, name, value)

    private fun event(kind: Int, name: String?, value: Long) {
        if (isLoaded) Native.event(kind, name, value)
    }

    private inline fun <T> guarded(block: () -> T): T? =
        try {
            block()
        } catch (e: IllegalStateException) {
            Log.w(LastRuns.TAG, e.message ?: e.toString())
            null
        } catch (e: UnsatisfiedLinkError) {
            // An ABI without the library.
            Log.w(LastRuns.TAG, e.toString())
            null
        }
}
