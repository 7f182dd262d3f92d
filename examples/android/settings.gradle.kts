pluginManagement {
    repositories {
        google()
        mavenCentral()
    }
    plugins {
        id("com.android.application") version "8.7.2"
        id("com.android.library") version "8.7.2"
        id("org.jetbrains.kotlin.android") version "2.0.21"
    }
}

dependencyResolutionManagement {
    repositories {
        google()
        mavenCentral()
    }
}

rootProject.name = "stackbeat-sample"
include(":app", ":stackbeat", ":noop")
project(":stackbeat").projectDir = file("../../hooks-android/aar/stackbeat")
project(":noop").projectDir = file("../../hooks-android/aar/noop")
