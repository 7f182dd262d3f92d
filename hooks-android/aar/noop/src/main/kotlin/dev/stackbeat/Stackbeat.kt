package dev.stackbeat

import android.content.Context
import java.io.File

/** The same as the real one, for release builds: it does nothing, and there is no native library. */
object Stackbeat {
    @JvmStatic
    @JvmOverloads
    @Suppress("UNUSED_PARAMETER")
    fun init(context: Context, onLastRun: ((LastRun) -> Unit)? = null) = Unit

    @JvmStatic
    @JvmOverloads
    @Suppress("UNUSED_PARAMETER")
    fun start(inMemory: Boolean = false): File? = null

    @JvmStatic
    fun stop(): File? = null

    @JvmStatic
    @JvmOverloads
    @Suppress("UNUSED_PARAMETER")
    fun dump(file: File, lastMs: Long = 0): Boolean = false

    @JvmStatic
    fun doctor(): String = ""

    @Suppress("UNUSED_PARAMETER")
    inline fun <T> scope(name: String, block: () -> T): T = block()

    @JvmStatic
    @Suppress("UNUSED_PARAMETER")
    fun beginScope(name: String) = Unit

    @JvmStatic
    fun endScope() = Unit

    @JvmStatic
    @Suppress("UNUSED_PARAMETER")
    fun mark(name: String) = Unit

    @JvmStatic
    @Suppress("UNUSED_PARAMETER")
    fun counter(name: String, value: Long) = Unit
}
