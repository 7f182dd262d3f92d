import asyncio, sys, time
async def serve(reader, writer):
    while line := await reader.readline(): await asyncio.sleep(0.003); writer.write(line.upper()); await writer.drain()
    writer.close()
async def ask(port, n):
    reader, writer = await asyncio.open_connection("127.0.0.1", port); out = []
    for i in range(10): writer.write(b"line %d %d\n" % (n, i)); out.append(await reader.readline())
    writer.close(); return len(b"".join(out))
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0); port = server.sockets[0].getsockname()[1]
    print(sum(await asyncio.gather(*(ask(port, n) for n in range(30))))); loop = asyncio.get_running_loop()
    print(await asyncio.gather(*(loop.run_in_executor(None, lambda n=n: (time.sleep(0.01), n)[1]) for n in range(20))))
    child = await asyncio.create_subprocess_exec("echo", "child", stdout=-1); print(await child.communicate(), child.returncode)
def deep(n): return 1 + deep(n + 1)
try: deep(0)
except RecursionError: print("recursion")
asyncio.run(main())
