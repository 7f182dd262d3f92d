package android.app;

public final class ApplicationExitInfo {
    public int getReason() {
        return 6;
    }

    public String getDescription() {
        return "user request after error";
    }

    public long getTimestamp() {
        return System.currentTimeMillis() + 60000;
    }
}
