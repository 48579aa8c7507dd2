//! A server of files on the machine alone, for a browser to look at a page.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::{fs, thread};

use crate::error::Error;

/// Serves the files below `folder` on a port of the loopback interface, for as long as the program runs; port 0 is any free
/// port. The answer is the address.
pub fn serve(folder: PathBuf, port: u16) -> Result<SocketAddr, Error> {
    let refused = |source| Error::Io {
        action: "listen on the loopback interface for",
        path: folder.clone(),
        source,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let folder = folder.clone();
            // A browser that leaves is no news.
            thread::spawn(move || drop(answer(stream, &folder)));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, folder: &Path) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    lines.read_line(&mut request)?;
    // The rest of the head, up to the empty line.
    let mut header = String::new();
    while lines.read_line(&mut header)? > 2 {
        header.clear();
    }
    let file = wanted(&request).map(|path| folder.join(path));
    let found = file.and_then(|file| Some((kind(&file), fs::read(file).ok()?)));
    let (status, (kind, body)) = match found {
        Some(found) => ("200 OK", found),
        None => ("404 Not Found", ("text/plain", b"no such file".to_vec())),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

/// The file that a request asks for: below the folder, and nothing else.
fn wanted(request: &str) -> Option<PathBuf> {
    let path = request.strip_prefix("GET /")?.split([' ', '?']).next()?;
    let path = PathBuf::from(if path.is_empty() { "index.html" } else { path });
    let is_below = |part: Component<'_>| matches!(part, Component::Normal(_));
    path.components().all(is_below).then_some(path)
}

/// The content type of a file, for the browser.
fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_folder_are_served() {
        let path = |request| wanted(request).map(|path| path.display().to_string());
        assert_eq!(path("GET / HTTP/1.1").as_deref(), Some("index.html"));
        assert_eq!(path("GET /a/b.js?x HTTP/1.1").as_deref(), Some("a/b.js"));
        assert_eq!(path("GET /../secret HTTP/1.1"), None);
        assert_eq!(path("GET //etc/passwd HTTP/1.1"), None);
        assert_eq!(path("POST / HTTP/1.1"), None);
    }
}
