// The library for builds that are recorded. `cargo ndk` puts libstackbeat_app.so into src/main/jniLibs before
// (docs/platforms/android-app.md).
plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "dev.stackbeat"
    compileSdk = 35
    defaultConfig {
        // AOSP's ART of Android 8 is the oldest that hooks-android knows.
        minSdk = 26
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
        consumerProguardFiles("consumer-rules.pro")
    }
    sourceSets["main"].kotlin.srcDir("../common/kotlin")
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
    kotlinOptions { jvmTarget = "1.8" }
}
