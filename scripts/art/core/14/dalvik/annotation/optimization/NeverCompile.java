package dalvik.annotation.optimization;

public @interface NeverCompile {}
