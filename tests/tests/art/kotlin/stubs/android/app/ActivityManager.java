package android.app;

import java.util.Collections;
import java.util.List;

public class ActivityManager {
    /** The process was killed a minute from now. */
    public List<ApplicationExitInfo> getHistoricalProcessExitReasons(String packageName, int pid, int most) {
        return Collections.singletonList(new ApplicationExitInfo());
    }
}
