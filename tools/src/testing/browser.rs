//! Headless Chromium over the DevTools protocol, for tests of the page. It speaks through a pipe
//! (`--remote-debugging-pipe`): messages are JSON ended by a NUL.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A browser with one page open. Ends with this value.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    next_id: u64,
    /// Messages of the console and uncaught errors.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

/// The browser's program. `None`: none is installed and none is required.
pub(crate) fn program_or_skip() -> Option<PathBuf> {
    let found = program();
    if found.is_none() {
        assert!(
            std::env::var_os("STACKBEAT_REQUIRE_BROWSER").is_none(),
            "no Chromium found in PATH"
        );
        eprintln!("skipped: no Chromium found in PATH");
    }
    found
}

fn program() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|p| p.exists())
}

impl Browser {
    /// Starts the browser with a window of this size.
    pub(crate) fn start(program: &Path, width: u32, height: u32) -> Browser {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        let mut browser = Browser {
            child,
            to,
            from,
            session: String::new(),
            next_id: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().expect("a session").into();
        for domain in [
            "Page.enable",
            "Runtime.enable",
            "Log.enable",
            "Network.enable",
        ] {
            browser.call(domain, json!({}));
        }
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
        browser
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.receive();
            if answer["id"] == json!(id) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from
            .read_until(0, &mut bytes)
            .expect("the browser answers");
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        let message: Value = serde_json::from_slice(&bytes).expect("JSON");
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self
                .complaints
                .push(message["params"]["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") => {
                self.complaints.push(message["params"]["args"].to_string());
            }
            Some("Log.entryAdded") => {
                self.complaints.push(message["params"]["entry"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                let url = message["params"]["request"]["url"].as_str().unwrap_or("");
                if !url.starts_with("file:") && !url.starts_with("data:") {
                    self.complaints.push(format!("asks the network for {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a file and waits until the page says that it is ready.
    pub(crate) fn open(&mut self, file: &Path) {
        self.call(
            "Page.navigate",
            json!({"url": format!("file://{}", file.display())}),
        );
        for _ in 0..200 {
            let ready = self.evaluate("document.readyState === 'complete' && !!window.stackbeat");
            if ready == json!(true) {
                // From here on `page` is the page's own object.
                self.evaluate("window.stackbeat.then((p) => { window.page = p; return true; })");
                self.frame();
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!(
            "{} does not become ready: {:?}",
            file.display(),
            self.complaints
        );
    }

    /// The value of a JavaScript expression; promises are waited for.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until what is to be drawn is drawn.
    pub(crate) fn frame(&mut self) {
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))",
        );
    }

    /// A picture of the window.
    pub(crate) fn screenshot(&mut self, file: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let coded = shot["data"].as_str().expect("a picture");
        let decoded = Command::new("base64")
            .arg("-d")
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(file).expect("a file"))
            .spawn()
            .and_then(|mut child| {
                child
                    .stdin
                    .take()
                    .expect("piped")
                    .write_all(coded.as_bytes())?;
                child.wait()
            });
        assert!(decoded.is_ok_and(|status| status.success()));
    }

    /// Moves, presses and releases the mouse.
    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64, extra: Value) {
        let mut event = json!({"type": kind, "x": x, "y": y, "button": "none"});
        for (key, value) in extra.as_object().into_iter().flatten() {
            event[key] = value.clone();
        }
        self.call("Input.dispatchMouseEvent", event);
    }

    /// A click at a point of the window.
    pub(crate) fn click(&mut self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, json!({}));
        let left = json!({"button": "left", "buttons": 1, "clickCount": 1});
        self.mouse("mousePressed", x, y, left.clone());
        self.mouse("mouseReleased", x, y, left);
        self.frame();
    }

    /// Presses a key that types a character.
    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key});
            if kind == "keyDown" && key.chars().count() == 1 {
                event["text"] = json!(key);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
        self.frame();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
