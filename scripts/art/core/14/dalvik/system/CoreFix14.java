package dalvik.system;

public class CoreFix14 {
    public static boolean refersTo(java.lang.ref.Reference<?> r, Object o) { return r.get() == o; }
    public static double fma(double a, double b, double c) { return a * b + c; }
    public static float fma(float a, float b, float c) { return a * b + c; }
    public static long multiplyHigh(long x, long y) {
        long x1 = x >> 32, x0 = x & 0xffffffffL, y1 = y >> 32, y0 = y & 0xffffffffL,
             t = x1 * y0 + (x0 * y0 >>> 32);
        return x1 * y1 + (t >> 32) + ((t & 0xffffffffL) + x0 * y1 >> 32);
    }

    public static String string(byte[] b, byte coder) { // 0: Latin-1, 1: UTF-16 in the machine's order
        char[] c = new char[coder == 0 ? b.length : b.length / 2];
        for (int i = 0; i < c.length; i++)
            c[i] = coder == 0 ? (char)(b[i] & 0xff) : (char)(b[2 * i] & 0xff | b[2 * i + 1] << 8);
        return new String(c);
    }
}
