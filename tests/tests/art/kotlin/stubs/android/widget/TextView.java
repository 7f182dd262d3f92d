package android.widget;

public class TextView extends android.view.View {
    public TextView(android.content.Context context) {}

    public void setText(CharSequence text) {}
}
