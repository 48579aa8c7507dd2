//! A browser without a window, steered by the DevTools protocol of Chromium over a pipe: `--remote-debugging-pipe` reads
//! commands from file descriptor 3 and writes answers to 4, each a JSON value with a zero byte behind it. No port is open, and
//! no library is needed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::Error;
use crate::process;

/// The names of Chromium in distributions.
const NAMES: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
];

/// The time limit of an answer that needs nothing of the page.
const SOON: Duration = Duration::from_secs(60);

/// The number of lines reported from the browser's own output: the browser says much while all is well.
const LAST_LINES: usize = 5;

/// The time to wait for the last lines once the browser has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The browser's program in `PATH`.
pub fn find() -> Option<&'static str> {
    NAMES.into_iter().find(|name| process::in_path(name))
}

/// A running browser with a single page. Dropping the value ends the browser.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    session: Option<String>,
    next: u64,
    /// The page and the page's scripts are there.
    is_loaded: bool,
    /// The lines that the page has written on the console.
    said: Vec<String>,
    /// The lines that the browser itself has written.
    last_words: LastWords,
}

impl Browser {
    /// Starts a browser with a profile of its own, and a page of the given size. `switches` are the browser's.
    pub fn start(
        mut command: Command,
        switches: &[&str],
        profile: &Path,
        (width, height): (u32, u32),
    ) -> Result<Self, Error> {
        command
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
            ])
            .args(switches)
            .arg(format!("--user-data-dir={}", profile.display()));
        // A child has only three pipes here; the shell gives two pipes the numbers wanted by the browser.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#, "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spawned = shell.spawn();
        let mut child = spawned.map_err(|source| process::spawn_error(&command, source))?;
        let (Some(commands), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(broken("it has no pipes"));
        };
        let last_words = LastWords::of(child.stderr.take());
        let (tell, answers) = channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let value = message.ok().map(|bytes| serde_json::from_slice(&bytes));
                let Some(Ok(value)) = value else { return };
                if tell.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            answers,
            session: None,
            next: 0,
            is_loaded: false,
            said: Vec::new(),
            last_words,
        };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        browser.ask("Page.enable", json!({}))?;
        browser.ask("Runtime.enable", json!({}))?;
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.ask("Emulation.setDeviceMetricsOverride", size)?;
        Ok(browser)
    }

    /// Goes to a page.
    pub fn open(&mut self, url: &str) -> Result<(), Error> {
        self.is_loaded = false;
        let answer = self.ask("Page.navigate", json!({ "url": url }))?;
        if let Some(error) = answer["errorText"].as_str() {
            return Err(broken(&format!("it cannot open {url}: {error}")));
        }
        let deadline = Instant::now() + SOON;
        while !self.is_loaded {
            let event = self.next_message(deadline, "Page.navigate")?;
            self.note(&event);
        }
        Ok(())
    }

    /// The value of an expression on the page, once the promise is settled.
    pub fn value_of(&mut self, expression: &str, within: Duration) -> Result<Value, Error> {
        let question =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.ask_within("Runtime.evaluate", question, within)?;
        match answer["exceptionDetails"]["text"].as_str() {
            Some(text) => Err(broken(&format!("`{expression}` failed: {text}"))),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// A picture of the page, as a PNG file.
    pub fn screenshot(&mut self) -> Result<Vec<u8>, Error> {
        let answer = self.ask("Page.captureScreenshot", json!({ "format": "png" }))?;
        let data = answer["data"].as_str().and_then(from_base64);
        data.ok_or_else(|| broken("its picture is not in base64"))
    }

    /// The lines that the page has written on the console so far.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Result<Value, Error> {
        self.ask_within(method, parameters, SOON)
    }

    fn ask_within(
        &mut self,
        method: &str,
        parameters: Value,
        within: Duration,
    ) -> Result<Value, Error> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = write!(self.commands, "{message}\0").and_then(|()| self.commands.flush());
        sent.map_err(|error| broken(&format!("{} ({error})", self.last_words.of_ended())))?;
        let deadline = Instant::now() + within;
        loop {
            let answer = self.next_message(deadline, method)?;
            if answer["id"] == json!(id) {
                return match answer["error"]["message"].as_str() {
                    Some(error) => Err(broken(&format!("{method}: {error}"))),
                    None => Ok(answer["result"].clone()),
                };
            }
            self.note(&answer);
        }
    }

    /// The next answer or event, during a wait for the answer to `method`.
    fn next_message(&self, deadline: Instant, method: &str) -> Result<Value, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(message) => Ok(message),
            Err(RecvTimeoutError::Timeout) => {
                let said = self.said.join("\n");
                Err(broken(&format!(
                    "no answer to {method} in time; the page said:\n{said}"
                )))
            }
            Err(RecvTimeoutError::Disconnected) => Err(broken(&self.last_words.of_ended())),
        }
    }

    /// Keeps the page's messages.
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Page.loadEventFired") => self.is_loaded = true,
            Some("Runtime.consoleAPICalled") => {
                let args = parameters["args"].as_array().into_iter().flatten();
                let texts = args.map(|arg| match &arg["value"] {
                    Value::String(text) => text.clone(),
                    Value::Null => arg["description"].as_str().unwrap_or_default().to_owned(),
                    other => other.to_string(),
                });
                self.said.push(texts.collect::<Vec<_>>().join(" "));
            }
            Some("Runtime.exceptionThrown") => {
                let details = &parameters["exceptionDetails"];
                let text = details["exception"]["description"].as_str();
                self.said
                    .push(text.unwrap_or("an exception without words").to_owned());
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser's other processes end with the browser.
        let _ = self.ask_within("Browser.close", json!({}), Duration::from_secs(5));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser's own output: the reason of the end, where the browser ends.
struct LastWords(Receiver<String>);

impl LastWords {
    /// Reads on a thread of its own until the other side has closed the pipe.
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let (tell, lines) = channel();
        thread::spawn(move || {
            let all = pipe
                .into_iter()
                .flat_map(|pipe| BufReader::new(pipe).split(b'\n'));
            for line in all.map_while(Result::ok) {
                if tell
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The news that the browser has ended, with the browser's last lines. A program started by the browser may keep the pipe
    /// open, so the end of the lines is not waited for longer than [`LAST_WORDS`].
    fn of_ended(&self) -> String {
        let deadline = Instant::now() + LAST_WORDS;
        let mut last = VecDeque::new();
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(line) = self.0.recv_timeout(left()) {
            last.push_back(line);
            if last.len() > LAST_LINES {
                last.pop_front();
            }
        }
        match last.is_empty() {
            true => "it has ended, without a word".to_owned(),
            false => format!(
                "it has ended; it said last:\n{}",
                Vec::from(last).join("\n")
            ),
        }
    }
}

fn broken(why: &str) -> Error {
    Error::Browser {
        why: why.to_owned(),
    }
}

/// The bytes of a text in base64.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text.trim_end_matches('=').bytes().map(digit);
    let digits: Vec<u8> = digits.collect::<Option<_>>()?;
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let word = (0..4).fold(0u32, |word, at| {
            word << 6 | u32::from(four.get(at).copied().unwrap_or(0))
        });
        bytes.extend_from_slice(&word.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_that_ends_is_told_with_its_last_words() {
        let none = LastWords::of(None::<&[u8]>).of_ended();
        assert_eq!(none, "it has ended, without a word");
        let lines: Vec<String> = (0..=LAST_LINES).map(|n| format!("line {n}")).collect();
        let pipe = std::io::Cursor::new(lines.join("\n"));
        let told = LastWords::of(Some(pipe)).of_ended();
        let kept = lines[1..].join("\n");
        assert_eq!(told, format!("it has ended; it said last:\n{kept}"));
    }

    /// A program other than a browser, in place of a browser without the needed libraries.
    #[cfg(unix)]
    #[test]
    fn a_browser_that_cannot_start_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such library >&2; exit 127"]);
        let profile = Path::new("no-profile");
        let started = Browser::start(command, &[], profile, (1, 1));
        let error = started.err().unwrap().to_string();
        assert!(error.contains("no such library"), "{error}");
    }

    #[test]
    fn base64_of_every_length() {
        assert_eq!(from_base64("").unwrap(), b"");
        assert_eq!(from_base64("Zg==").unwrap(), b"f");
        assert_eq!(from_base64("Zm8=").unwrap(), b"fo");
        assert_eq!(from_base64("Zm9v").unwrap(), b"foo");
        assert_eq!(from_base64("+/8A").unwrap(), [0xfb, 0xff, 0]);
        assert_eq!(from_base64("Z*=="), None);
    }
}
