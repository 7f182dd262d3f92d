package com.example.sample

import java.util.concurrent.CountDownLatch
import kotlin.concurrent.thread

object Work {
    private val lock = Any()

    /** Waits for a lock that another thread holds for a while. Gives the milliseconds. */
    fun waitForLock(): Long {
        val isHeld = CountDownLatch(1)
        thread(name = "holder") {
            synchronized(lock) {
                isHeld.countDown()
                Thread.sleep(200)
            }
        }
        isHeld.await()
        val began = System.nanoTime()
        return synchronized(lock) { (System.nanoTime() - began) / 1_000_000 }
    }

    /** Makes many small objects. Gives their bytes. */
    fun allocate(): Int {
        var bytes = 0
        repeat(200_000) { bytes += ByteArray(32).size }
        return bytes
    }
}
