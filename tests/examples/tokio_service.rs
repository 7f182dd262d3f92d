//! A small service on tokio. With a number as its argument it has a client in the same process, which makes
//! as many requests: what the tests of wakers record. With `block NUMBER` its main thread waits for answers
//! itself, which no future should do. With `serve FILE` it writes its port into that file and serves others
//! until its input ends.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Each request is handed to a thread of the service's own, which takes this long.
const WORK: Duration = Duration::from_millis(3);

type Job = (u64, oneshot::Sender<u64>);

fn works(jobs: &mpsc::Receiver<Job>) {
    for (number, done) in jobs {
        thread::sleep(WORK);
        let _ = done.send(number + 1);
    }
}

async fn serves(mut stream: TcpStream, jobs: mpsc::Sender<Job>) -> io::Result<()> {
    while let Ok(number) = stream.read_u64().await {
        let (done, answer) = oneshot::channel();
        jobs.send((number, done)).map_err(io::Error::other)?;
        stream
            .write_u64(answer.await.map_err(io::Error::other)?)
            .await?;
    }
    Ok(())
}

async fn accepts(listener: TcpListener, jobs: mpsc::Sender<Job>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serves(stream, jobs.clone()));
    }
}

async fn starts() -> io::Result<SocketAddr> {
    let (send, receive) = mpsc::channel();
    thread::Builder::new()
        .name("work".to_owned())
        .spawn(move || works(&receive))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(accepts(listener, send));
    Ok(address)
}

async fn serves_others(port_file: &Path) -> io::Result<()> {
    let port = starts().await?.port();
    let unfinished = port_file.with_extension("new");
    std::fs::write(&unfinished, port.to_string())?;
    std::fs::rename(unfinished, port_file)?;
    let (ends, end) = oneshot::channel();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = ends.send(());
    });
    end.await.map_err(io::Error::other)
}

/// Blocks its thread until each answer is there.
async fn blocks(requests: u64) -> io::Result<()> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || works(&receive));
    for number in 0..requests {
        let (done, answer) = oneshot::channel();
        let (hand_over, handed_over) = mpsc::channel();
        send.send((number, done)).map_err(io::Error::other)?;
        tokio::spawn(async move { hand_over.send(answer.await) });
        let answer = handed_over.recv().map_err(io::Error::other)?;
        assert_eq!(answer.map_err(io::Error::other)?, number + 1);
    }
    Ok(())
}

async fn runs(requests: u64) -> io::Result<()> {
    let address = starts().await?;
    let mut client = TcpStream::connect(address).await?;
    for number in 0..requests {
        client.write_u64(number).await?;
        assert_eq!(client.read_u64().await?, number + 1);
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let number = |text: &String| text.parse::<u64>().map_err(io::Error::other);
    match &arguments[..] {
        [command, requests] if command == "block" => runtime.block_on(blocks(number(requests)?)),
        [command, file] if command == "serve" => runtime.block_on(serves_others(Path::new(file))),
        [requests] => {
            // Waits of the main thread that are no executor's: without any the others would be all there is.
            let warms_up = thread::Builder::new().name("warms-up".to_owned());
            let _ = warms_up.spawn(|| thread::sleep(WORK))?.join();
            runtime.block_on(runs(number(requests)?))
        }
        _ => Err(io::Error::other(
            "wants a number of requests, `block NUMBER` or `serve FILE`",
        )),
    }
}
