// Search runs in a Worker, which browsers refuse to a page that was opened from a folder. There an iframe takes its place.
// Search looks for the name IFrameWorker, and then waits for what importScripts returns.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write("<body></body>");
      inside.document.close();
      const load = (src) => new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src, onload: loaded, onerror: failed });
        inside.document.body.append(script);
      });
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = load(url);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
