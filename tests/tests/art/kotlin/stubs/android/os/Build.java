package android.os;

public class Build {
    public static class VERSION {
        // Not a constant of the compiler's.
        public static final int SDK_INT = Integer.parseInt("34");
    }
}
