package android.content;

// What of Android the library and the sample app use, without anything behind it: Kotlin is compiled and run with these.
public class Context {
    public static final String ACTIVITY_SERVICE = "activity";

    public java.io.File getFilesDir() {
        return new java.io.File(System.getProperty("files"));
    }

    public String getPackageName() {
        return "com.example";
    }

    public Object getSystemService(String name) {
        return new android.app.ActivityManager();
    }
}
