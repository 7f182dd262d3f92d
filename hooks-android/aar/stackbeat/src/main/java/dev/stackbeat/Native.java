package dev.stackbeat;

/** What libstackbeat_app.so does (hooks-android/app/src/jni.rs). What fails is an IllegalStateException. */
final class Native {
    private Native() {}

    /**
     * Records into the folder and gives the trace's path. If asks: only where the device's properties want it, and as they say; null:
     * they do not. If inMemory: records have no file, and none of them outlive the app.
     */
    static native String start(String folder, boolean asks, boolean inMemory);

    /** Gives the path of the trace, which is complete; null: nothing was recorded. */
    static native String stop();

    /** What became of each hook, a line each, and which hooks the calls pass that they are for. */
    static native String doctor();

    /** Writes what was recorded so far, or the last of it, if that is not 0. */
    static native void dump(String path, long lastMs);

    /** Completes what killed runs have left in the folder, and says so in lines of fields with tabs between them. */
    static native String save(String folder);

    /** Kinds are those of stackbeat.v1.Event.Kind; 10 is a counter. */
    static native void event(int kind, String name, long value);
}
