// Read from the disk, pages may start no workers, and the search is one: in a frame that nobody sees it runs all the same.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    // A worker's postMessage answers whoever made it.
    this.frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = this.frame.contentDocument.createElement("script");
    script.src = url;
    this.loaded = new Promise((resolve) => script.addEventListener("load", resolve));
    this.frame.contentDocument.body.append(script);
  }

  postMessage(data) {
    this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
