package com.example.sample

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.LinearLayout
import android.widget.TextView
import dev.stackbeat.Stackbeat

/** Each button does something that the trace shows. */
class MainActivity : Activity() {
    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val said = TextView(this)
        val column = LinearLayout(this)
        column.orientation = LinearLayout.VERTICAL
        column.addView(said)
        fun button(text: String, what: () -> Any?) {
            val button = Button(this)
            button.setText(text)
            button.setOnClickListener { said.setText("$text: ${what()}") }
            column.addView(button)
        }
        button("start") { Stackbeat.start() }
        button("stop") { Stackbeat.stop() }
        button("wait for a lock") { Stackbeat.scope("wait for a lock") { Work.waitForLock() } }
        button("allocate") { Stackbeat.scope("allocate") { Work.allocate() } }
        setContentView(column)
    }
}
