plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "com.example.sample"
    compileSdk = 35
    defaultConfig {
        applicationId = "com.example.sample"
        minSdk = 26
        targetSdk = 35
        versionCode = 1
        versionName = "1"
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
    kotlinOptions { jvmTarget = "1.8" }
}

dependencies {
    debugImplementation(project(":stackbeat"))
    releaseImplementation(project(":noop"))
}
