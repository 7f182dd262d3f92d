import android.app.Application
import com.example.sample.Work
import dev.stackbeat.Stackbeat
import java.io.File

/** Uses all of the library, as an app does, and says what it gives. */
fun main(arguments: Array<String>) {
    Stackbeat.mark("before init")
    Stackbeat.init(Application()) { run ->
        val main = run.waits.first { it.isMain }
        println("last ${run.pid} ${run.records > 0} ${run.lost} ${main.call} ${run.blockedMs in 55_000..120_000} ${run.reason}")
        println("recovered ${run.trace}")
    }
    println("trace ${Stackbeat.start()}")
    Stackbeat.scope("lock") { Work.waitForLock() }
    Stackbeat.scope("memory") { Work.allocate() }
    Stackbeat.counter("things", 42)
    Stackbeat.mark("a mark")
    println("dumped ${Stackbeat.dump(File(arguments[0]))}")
    if (arguments.size > 1) {
        println("dies")
        System.out.flush()
        val lock = Any()
        synchronized(lock) { (lock as Object).wait() }
    }
    println("stopped ${Stackbeat.stop()}")
    println("again ${Stackbeat.stop()}")
}
