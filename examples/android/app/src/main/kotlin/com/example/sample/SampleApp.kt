package com.example.sample

import android.app.Application
import dev.stackbeat.Stackbeat

class SampleApp : Application() {
    override fun onCreate() {
        super.onCreate()
        Stackbeat.init(this) { run -> println("the last run: ${run.trace}, blocked for ${run.blockedMs} ms") }
    }
}
