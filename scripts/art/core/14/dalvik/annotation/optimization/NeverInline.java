package dalvik.annotation.optimization;

public @interface NeverInline {}
