import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** `receive` waits for a pipe into which `feed` of another thread writes late. */
public class Pipe {
    static FileInputStream source;
    static FileOutputStream sink;

    static long receive() throws IOException {
        long begin = System.nanoTime();
        source.read(); // CAUSE
        return System.nanoTime() - begin;
    }

    static void feed() throws IOException, InterruptedException {
        Thread.sleep(20);
        sink.write(1); // WAKER
    }

    public static void main(String[] arguments) throws Exception {
        Path path = Files.createTempDirectory("pipe").resolve("fifo");
        new ProcessBuilder("mkfifo", path.toString()).start().waitFor();
        Thread feeder = new Thread(() -> {
            try {
                sink = new FileOutputStream(path.toFile());
                for (int i = 0; i < 100; i++)
                    feed();
            } catch (IOException | InterruptedException e) {
                throw new RuntimeException(e);
            }
        }, "feeder");
        feeder.start();
        source = new FileInputStream(path.toFile());
        long waited = 0;
        for (int i = 0; i < 100; i++)
            waited += receive();
        feeder.join();
        Files.delete(path);
        Files.delete(path.getParent());
        System.out.printf("{\"wait_s\": %.6f}%n", waited / 1e9);
    }
}
