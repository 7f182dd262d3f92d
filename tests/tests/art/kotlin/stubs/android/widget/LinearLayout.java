package android.widget;

public class LinearLayout extends android.view.View {
    public static final int VERTICAL = 1;

    public LinearLayout(android.content.Context context) {}

    public int getOrientation() {
        return VERTICAL;
    }

    public void setOrientation(int orientation) {}

    public void addView(android.view.View view) {}
}
