package java.lang.invoke;

// Only for javac: Prep turns every use into a class.
public class LambdaMetafactory {
    public static CallSite metafactory(MethodHandles.Lookup caller, String name, MethodType type,
                                       MethodType sam, MethodHandle impl, MethodType inst) {
        throw new UnsupportedOperationException();
    }

    public static CallSite altMetafactory(MethodHandles.Lookup caller, String name, MethodType type,
                                          Object... args) {
        throw new UnsupportedOperationException();
    }
}
