/** Nearly all bytes are allocated in one line of `makeRows`. */
public class Alloc {
    static byte[][] index(int n) {
        byte[][] rows = new byte[n][];
        for (int i = 0; i < n; i++)
            rows[i] = new byte[700];
        return rows;
    }

    static byte[][] makeRows(int n) {
        byte[][] rows = new byte[n][];
        for (int i = 0; i < n; i++)
            rows[i] = new byte[4000 + i % 100]; // CAUSE
        return rows;
    }

    public static void main(String[] arguments) {
        long bytes = 0, calls = 0;
        for (int round = 0; round < 200; round++) {
            index(200);
            // Header and alignment: what `jol` shows for a byte[] with compressed class pointers.
            for (byte[] row : makeRows(6000))
                bytes += (16 + row.length + 7) / 8 * 8;
            calls += 6000;
        }
        System.out.printf("{\"bytes\": %d, \"calls\": %d}%n", bytes, calls);
    }
}
