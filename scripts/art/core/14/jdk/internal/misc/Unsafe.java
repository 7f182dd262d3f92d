package jdk.internal.misc;

// ART 14 registers these natives and knows some of the rest as intrinsics.
public final class Unsafe {
    private static final Unsafe theUnsafe = new Unsafe();
    private Unsafe() {}
    public static Unsafe getUnsafe() { return theUnsafe; }
    public native boolean compareAndSwapInt(Object a, long b, int c, int d);
    public native boolean compareAndSwapLong(Object a, long b, long c, long d);
    public native boolean compareAndSwapObject(Object a, long b, Object c, Object d);
    public native boolean compareAndSetInt(Object a, long b, int c, int d);
    public native boolean compareAndSetLong(Object a, long b, long c, long d);
    public native boolean compareAndSetReference(Object a, long b, Object c, Object d);
    public native int getIntVolatile(Object a, long b);
    public native void putIntVolatile(Object a, long b, int c);
    public native long getLongVolatile(Object a, long b);
    public native void putLongVolatile(Object a, long b, long c);
    public native Object getReferenceVolatile(Object a, long b);
    public native void putReferenceVolatile(Object a, long b, Object c);
    public native int getInt(Object a, long b);
    public native void putInt(Object a, long b, int c);
    public native void putOrderedInt(Object a, long b, int c);
    public native long getLong(Object a, long b);
    public native void putLong(Object a, long b, long c);
    public native void putOrderedLong(Object a, long b, long c);
    public native Object getReference(Object a, long b);
    public native void putReference(Object a, long b, Object c);
    public native void putOrderedObject(Object a, long b, Object c);
    public native int getArrayBaseOffsetForComponentType(Class a);
    public native int getArrayIndexScaleForComponentType(Class a);
    public native int addressSize();
    public native int pageSize();
    public native long allocateMemory(long a);
    public native void freeMemory(long a);
    public native void setMemory(long a, long b, byte c);
    public native void copyMemory0(Object a, long b, Object c, long d, long e);
    public native boolean getBoolean(Object a, long b);
    public native byte getByte(Object a, long b);
    public native char getChar(Object a, long b);
    public native short getShort(Object a, long b);
    public native float getFloat(Object a, long b);
    public native double getDouble(Object a, long b);
    public native void putBoolean(Object a, long b, boolean c);
    public native void putByte(Object a, long b, byte c);
    public native void putChar(Object a, long b, char c);
    public native void putShort(Object a, long b, short c);
    public native void putFloat(Object a, long b, float c);
    public native void putDouble(Object a, long b, double c);
    public native void unpark(Object a);
    public native void park(boolean a, long b);
    public native byte getByte(long a);
    public native char getChar(long a);
    public native short getShort(long a);
    public native int getInt(long a);
    public native long getLong(long a);
    public native float getFloat(long a);
    public native double getDouble(long a);
    public native void putByte(long a, byte b);
    public native void putChar(long a, char b);
    public native void putShort(long a, short b);
    public native void putInt(long a, int b);
    public native void putLong(long a, long b);
    public native void putFloat(long a, float b);
    public native void putDouble(long a, double b);
    public native void loadFence();
    public native void storeFence();
    public native void fullFence();
    public int getIntAcquire(Object o, long f) { return getIntVolatile(o, f); }
    public long getLongAcquire(Object o, long f) { return getLongVolatile(o, f); }
    public Object getObject(Object o, long f) { return getReference(o, f); }
    public Object getObjectVolatile(Object o, long f) { return getReferenceVolatile(o, f); }
    public Object getObjectAcquire(Object o, long f) { return getReferenceVolatile(o, f); }
    public void putObject(Object o, long f, Object v) { putReference(o, f, v); }
    public void putObjectVolatile(Object o, long f, Object v) { putReferenceVolatile(o, f, v); }
    public void putObjectRelease(Object o, long f, Object v) { putReferenceVolatile(o, f, v); }
    public void putIntRelease(Object o, long f, int v) { putIntVolatile(o, f, v); }
    public void putLongRelease(Object o, long f, long v) { putLongVolatile(o, f, v); }
    public boolean compareAndSetObject(Object o, long f, Object a, Object b) {
        return compareAndSetReference(o, f, a, b);
    }
    public int getAndAddInt(Object o, long f, int d) {
        int v;
        do v = getIntVolatile(o, f);
        while (!compareAndSetInt(o, f, v, v + d));
        return v;
    }
    public long getAndAddLong(Object o, long f, long d) {
        long v;
        do v = getLongVolatile(o, f);
        while (!compareAndSetLong(o, f, v, v + d));
        return v;
    }
    public int getAndSetInt(Object o, long f, int n) {
        int v;
        do v = getIntVolatile(o, f);
        while (!compareAndSetInt(o, f, v, n));
        return v;
    }
    public long getAndSetLong(Object o, long f, long n) {
        long v;
        do v = getLongVolatile(o, f);
        while (!compareAndSetLong(o, f, v, n));
        return v;
    }
    public Object getAndSetObject(Object o, long f, Object n) {
        Object v;
        do v = getReferenceVolatile(o, f);
        while (!compareAndSetReference(o, f, v, n));
        return v;
    }
}
