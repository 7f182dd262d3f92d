// The same API without anything behind it, for release builds.
plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "dev.stackbeat.noop"
    compileSdk = 35
    defaultConfig { minSdk = 21 }
    sourceSets["main"].kotlin.srcDir("../common/kotlin")
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
    kotlinOptions { jvmTarget = "1.8" }
}
