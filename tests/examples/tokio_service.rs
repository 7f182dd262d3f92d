//! A small service on tokio, and its clients in the same process: what the tests of wakers record. The first
//! argument is the number of requests.

use std::io;
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

async fn runs(requests: u64) -> io::Result<()> {
    let (send, receive) = mpsc::channel();
    thread::Builder::new()
        .name("work".to_owned())
        .spawn(move || works(&receive))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(accepts(listener, send));
    let mut client = TcpStream::connect(address).await?;
    for number in 0..requests {
        client.write_u64(number).await?;
        assert_eq!(client.read_u64().await?, number + 1);
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let requests = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(runs(requests.unwrap_or(100)))
}
