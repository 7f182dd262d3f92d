package java.lang;

// The runtime wants the class; plain map instead of the real one.
public abstract class ClassValue<T> {
    private final java.util.WeakHashMap<Class<?>, T> map = new java.util.WeakHashMap<>();

    protected ClassValue() {}

    protected abstract T computeValue(Class<?> type);

    public synchronized T get(Class<?> type) {
        T v = map.get(type);
        if (v == null) map.put(type, v = computeValue(type));
        return v;
    }

    public synchronized void remove(Class<?> type) { map.remove(type); }
}
