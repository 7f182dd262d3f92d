package java.lang;

final class StackStreamFactory {
    static native Object nativeGetStackAnchor();
    static native int nativeFetchStackFrameInfo(long mode, Object anchor, int skip, int batch, int start,
                                                Object[] frames);
}
