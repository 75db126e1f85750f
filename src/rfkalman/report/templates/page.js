"use strict";
// The pictures are all in the page already; the slider shows one time of them large. Without scripts they stay as they are.
(function () {
  var all = document.querySelector(".multiples");
  var slider = document.querySelector(".slider");
  if (all && slider) {
    var frames = all.querySelectorAll(".frame");
    var range = slider.querySelector("input");
    var shown = slider.querySelector("output");
    var places = slider.querySelectorAll("img");
    var play = slider.querySelector("[data-play]");
    var timer = null;
    var show = function (i) {
      var pictures = frames[i].querySelectorAll("img");
      for (var k = 0; k < places.length; k++) {
        places[k].src = pictures[k].src;
        places[k].alt = pictures[k].alt;
        places[k].width = pictures[k].getAttribute("width");
        places[k].height = pictures[k].getAttribute("height");
      }
      var text = frames[i].querySelector("figcaption").textContent;
      shown.textContent = text;
      range.setAttribute("aria-valuetext", text);
      range.value = i;
    };
    var stop = function () {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    };
    var step = function (by) {
      show((Number(range.value) + by + frames.length) % frames.length);
    };
    range.addEventListener("input", function () { stop(); show(Number(range.value)); });
    slider.querySelector("[data-back]").addEventListener("click", function () { stop(); step(-1); });
    slider.querySelector("[data-on]").addEventListener("click", function () { stop(); step(1); });
    play.addEventListener("click", function () {
      if (timer) { stop(); return; }
      play.textContent = "Pause";
      timer = setInterval(function () { step(1); }, 700);
    });
    slider.hidden = false;
    all.open = false;
    show(frames.length - 1);
  }
  // On paper nothing can be unfolded, so everything is.
  var opened = [];
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details:not([open])").forEach(function (d) { d.open = true; opened.push(d); });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (d) { d.open = false; });
    opened = [];
  });
})();
